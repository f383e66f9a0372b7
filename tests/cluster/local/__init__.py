"""A real cluster on one machine: the programs of a deployment, each a process with an address of its own."""
