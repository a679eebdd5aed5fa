"""Models compared on one's own table, pictures or texts, with a rule that learns nothing beside them."""
