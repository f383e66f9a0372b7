"""One asset per stage and per kind of model, partitioned by data set; a body builds a request, calls a resource, tells."""
