"""Objects of other libraries made from those of this package, one module a library; nothing else imports them."""
