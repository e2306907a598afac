"""The pages of users: parse, call a service, show. Accounts too.

Every change is a POST with a CSRF token, and a stranger's AS does not exist (404).
"""
