"""The banks of the paper: what one component is, how all of them are computed, and kernels that train them."""
