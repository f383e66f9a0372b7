"""The `diy` data set: Reddit submissions, from dumps or the API, and the imgur albums they point at.

submissions.py   what a submission is, which record of one counts, which ones are wanted, and the dumps
listing.py       submissions of Reddit's API
removal.py       whether a record says that its post is gone
addresses.py     addresses of imgur albums
galleries.py     entries of albums; Reddit's own galleries
albums.py        an album is fetched, from a page of any of imgur's generations or from its API: a candidate document
"""
