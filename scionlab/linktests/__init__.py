"""Watches, tests that send, joint tests; why a throughput is what it is. An extension.

Is      `LinkTest`, `JointTest`, results, policies; times are reserved so that tests do not overlap
Offers  the key `Tests` of link_info.json (`testbed.models.link_ends`), a panel of the page of a Link, facts of receipts
        that a test is armed, REST of tests, the document `test_results` of the host API
Needs   the core; shows what passed where usage measures it (`limits.measured`)
"""
