"""What runs in the processes of a program under test: the standard library alone, and it never sees a trainer.

supervise.py is the process that the sandbox starts. It confines itself (confine.py), forks one process for each
test that runs the program, or for a test in Python one that holds the program (converse.py) and one that holds the
test (tester.py); what the two say to each other is plain data (plain.py).
"""
