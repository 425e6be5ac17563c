"""Machines: chips, links and device orders; counted work in, modelled seconds out."""
