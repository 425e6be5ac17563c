"""Machines: chips, links and device orders, which give modelled seconds for counted work."""
