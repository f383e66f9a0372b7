"""The `diy` data set: Reddit submissions, from dumps or the API, and the imgur albums they point at.

submissions.py   the settings, what a submission is, which ones are wanted, and the dumps they are read from
listing.py       submissions of Reddit's API
albums.py        an album is fetched, from a page of any of imgur's generations or from its API: a candidate document
"""
