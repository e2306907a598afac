"""The pages: parse, call a service, show.

Every change is a POST with a CSRF token, and a stranger's AS does not exist (404).
"""
