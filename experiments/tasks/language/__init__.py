"""``task=wikisql_easy`` and others: a pretrained language model is adapted to a data set of questions and answers."""
