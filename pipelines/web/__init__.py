"""Polite fetching for every source: one client with limits, retries, robots.txt, pace, address checks and a raw store.

Start at `client.py`. Sources and the images stage fetch through it and through nothing else.
"""
