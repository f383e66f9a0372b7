"""The `diy` data set: Reddit submissions, from dumps or the API, and the imgur albums they point at.

submissions.py   what a submission is, which ones are wanted, and the dumps they are read from
listing.py       submissions of Reddit's API
pages.py         an album, from a page of any of imgur's generations or from its API
albums.py        an album is fetched and becomes a candidate document
transforms.py    the whole source in Beam
"""
