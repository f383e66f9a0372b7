"""The `wiki` data set: articles with their pictures, from the ImageCLEF collection or from a live MediaWiki.

imageclef.py    the collection of 2010: which images illustrate an article, and its wiki markup
wikitext.py     wiki markup becomes paragraphs
live.py         titles and articles of a MediaWiki over its interfaces
pages.py        an article's HTML becomes paragraphs and pictures
"""
