"""Operators that ask a language model: describe -> prompt -> transport -> parse -> feedback.

`describe` turns facts into plain values, `prompt` renders them, `transport` (and `folder`) alone do IO, `parse`
reads answers, `feedback` says what went wrong. `asking` ties models, money, deadline and recording together,
`conversation` one proposal, `operators` names the ways to make a child. docs/llm.md explains all of it.
"""
