"""Runnable examples.

This file makes a package of the folder: gmqtt installs one of the same name, and a folder without this file
would stand behind it.
"""
