"""Articles of Wikipedia with their pictures: their text, and those of a live MediaWiki.

articles.py     wiki markup, and an article's HTML, become paragraphs and pictures
live.py         titles and articles of a MediaWiki over its interfaces
"""
