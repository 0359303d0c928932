"""What an element of a region does about epochs: tokens that overtake, uploads, steps done again, sizes, points of its operators."""
