"""What several studies share: tests and intervals, tables of results, and a width at which models are as large."""
