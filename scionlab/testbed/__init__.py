"""ISDs, ASes, hosts, interfaces, Links, attachment points and the audit of changes; numbers, locks, addresses, and
what raises the versions H and L.

Is      the rows that all apps share. docs/architecture.md says which app writes which of their columns.
Offers  services for infrastructure, `selectors`, `locks` (their one order), `versions.changes.Changes`, `audit`
        For apps above: `life.LIVES` (something was made or ends), `cockpit.OFFERS`, `models.link_ends.TESTS`
Needs   platform, web, accounts
"""
