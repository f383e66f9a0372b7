"""The `diy` data set: Reddit submissions, from dumps or the API, and the imgur albums they point at.

submissions.py   what a submission is, which record of one counts, whether it is gone, which are wanted; addresses of
                 imgur albums; Reddit's own galleries
albums.py        an album is fetched, from a page of any of imgur's generations or from its API: a candidate document
"""
