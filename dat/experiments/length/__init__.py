"""Length: sorting and equations, longer than any that were trained on."""
