
require github.com/go-jose/go-jose/v4 v4.1.4
