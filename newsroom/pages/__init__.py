"""The pages of the newsroom: `multilink pages`, a web application over a lake and its indexes.

They compose both halves (the pipeline's extractors read a query, training ranks for it), so they stand here.

    app.py        the application: what is put together, in which order
    access.py     who may come in, which writes are taken, what is sealed
    limits.py     how much, how long, how many at once
    state.py      what requests share: the lake, the indexes, the store
    rendering.py  templates, and the interface's language (`texts/`)
    pictures.py   the lake's copies of pictures
    searches.py   processes that search       search_jobs.py   what an address asks for, and what they do

A module with pages has an `APIRouter` named `router`; `app.MODULES` names it, and `app.NAVIGATION` its address. Its
functions take `shared: state.Shared` and answer with `rendering.page(request, "name.html.j2", ...)`. Templates extend
`base.html.j2`. The Content-Security-Policy allows neither a script nor a `style` attribute in a page: widths are
attributes of SVG, or a script's doing. Forms need no token (`access.guard_writes`).
"""
