module github.com/goccl/goccl

go 1.26
