"""All of Ray: training on workers, linking by workers, and the run's folder through which they are followed."""
