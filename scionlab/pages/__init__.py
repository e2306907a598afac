"""The users' pages: parse, call a service, render.

Every change is a POST with a CSRF token, and other users' ASes are 404.
"""
