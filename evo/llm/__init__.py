"""What a run adds to `mutations.llm`: endpoint, budget, concurrency, choice of operator and model, recording, costs.

`connect` reads the environment, `proposer` makes the children of a generation that a model is asked for, `desk`
serves their threads, `choice` weighs operators and models, `recorded` reads what earlier sessions asked, `costs`
adds up.
"""
