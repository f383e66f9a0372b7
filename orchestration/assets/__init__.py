"""One asset per stage and per kind of model, partitioned by data set: a body calls a resource and tells of it."""
