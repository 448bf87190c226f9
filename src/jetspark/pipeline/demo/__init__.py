"""`jetspark demo`: an order flow, a pipeline that works on it, and the proof of the books.

`orders` makes events, `flow` publishes them, pipeline.yml says what becomes of them, `run` puts it
together, `evidence` reads what came of it, `books` compares, `report` draws.
"""
