"""When, in what order, and with which checks; the command line."""
