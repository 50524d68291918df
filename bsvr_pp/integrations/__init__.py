"""Objects of other libraries made from objects of this package, one module per library; nothing else imports them."""
