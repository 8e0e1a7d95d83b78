"""Trained models that can be handed on: exporting a run, finding one by name, folder or address, and its model card.

A folder here that has a `config.json` is a model that comes with slotbench, under the folder's name.
"""
