"""Everything that imports Dagster: assets, checks, jobs, schedules, sensors, and what Dagster's record says."""
