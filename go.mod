module github.com/goccl/goccl

go 1.26.0

require (
	github.com/x448/float16 v0.8.4
	golang.org/x/sys v0.50.0
)

require github.com/google/go-cmp v0.7.0
