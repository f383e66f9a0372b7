"""Who may use which model: a chain of signed statements in the lake, and the keys that sign them."""
