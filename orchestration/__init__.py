"""When, in what order, and with which checks: the only package that imports both `pipelines` and `training`."""
