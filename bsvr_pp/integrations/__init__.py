"""Objects of other libraries made from objects of this package, one module a library; nothing else imports them."""
