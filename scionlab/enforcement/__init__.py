"""What is enforced: the one judgement of a Link's way from a save to the kernel, which every door reads.

agents      what is known of an attachment point's agent: whether it reports, its clock, its problems
facts       what is known of one Link: read from its rows, or by the database of all Links at once
judgement   the stage and the state that follow from both; here alone is decided what counts as enforced
total       the total of all Links of an attachment point, and whether it is in force
status      a Link with its judgement, the figures beside it, and how it is said
census      all Links judged in a constant number of statements: counts, and the judgement as a column
words       the table of words: each state with its word, its colour and its explanation
problems    the problems that agents report; explanations: what their codes mean

receipt     what an attachment point reports, stored (receipt_mails: who is told of it)
notices     mails about what needs somebody
last_contact  when hosts and tokens were last heard, kept away from the database
"""
