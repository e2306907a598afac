"""Users, registration, API tokens, the second factor, and their mails.

Is      `User`, `ApiToken`, and `Mail`, the outbox of all mails
Offers  `mail.mails_create` in the transaction of an event, `api_token`, `last_use`
        Pages below /account/, REST below profile/ and tokens/
Needs   platform, web
"""
