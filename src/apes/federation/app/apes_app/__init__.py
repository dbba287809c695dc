"""What a Flower server ships to its nodes: a courier, and for itself the analyzer."""
