"""What must hold before something starts: this is not an import, the system has room, and what we need of it is there.

Lives here: checks and the errors that explain them. They are asked by whoever starts something; nothing here starts anything.
"""
