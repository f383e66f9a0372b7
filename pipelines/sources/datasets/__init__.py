"""Data sets by file: each holds their recipes (`RECIPES`), and their source where it is not a package of its own.

To add one: a module with settings of a source that have a `read()` (`pipelines.sources.source`), and a recipe.
"""
