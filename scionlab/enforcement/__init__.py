"""Enforcement: the one judgement of a Link's state, which pages, APIs, mails and metrics read.

agents        state of an attachment point's agent: reports, clock, problems
facts         the facts of one Link, from its rows or by SQL for all Links
judgement     stage and state that follow from both; the only definition of "enforced"
total         the total of all Links of an attachment point, and whether it is enforced
status        a Link with its judgement, figures and text
census        all Links judged in a constant number of statements: counts, and the judgement as a column
words         each state with its word, colour and explanation
problems      the problems that agents report; explanations: the meaning of their codes

receipt       stores what an attachment point reports (receipt_mails: mails that follow)
notices       mails about states that need attention
generation    raises G, when a receipt proves that this database forgot versions

Offers to apps above: `receipt.FACTS` (more facts that a receipt brings). Needs delivery and what is below it.
"""
