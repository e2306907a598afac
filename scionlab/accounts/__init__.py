"""Users, registration, API tokens, the second factor, and their mails."""
