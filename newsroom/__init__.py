"""The application of Liu et al. 2020: an archive of pictures, its search, the pages of editors, what they decided.

It stands above `pipelines` and `training`; nothing below it knows it.
"""
