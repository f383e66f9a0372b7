"""When, in what order, and with which checks: the one place that knows both halves."""
